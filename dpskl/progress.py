"""Callbacks of scikit-learn 1.9 and later, such as progress bars: how many questions are planned and were asked.

Nothing else goes to a callback: no rows, no labels and no half-fitted model, which are what scores are made of.
"""

from __future__ import annotations

from typing import Any

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9 has none

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing to support."""

    def with_callbacks(method):
        """Return the method as it is."""
        return method


__all__ = ["CallbackSupportMixin", "Progress", "with_callbacks"]


class Progress:
    """What one fit tells its callbacks: that it begins, that a question was answered, that it ends.

    Parameters
    ----------
    estimator : CallbackSupportMixin
        Within a ``fit`` that is decorated by ``with_callbacks``.
    n_questions : int or None
        How many questions are planned; ``None`` where the solver decides at run time, from what it has released.
    """

    def __init__(self, estimator: Any, n_questions: int | None) -> None:
        self._estimator = estimator
        self._fit: Any = None
        if hasattr(estimator, "_init_callback_context"):
            fit = estimator._init_callback_context(max_subtasks=n_questions)
            fit.call_on_fit_task_begin(estimator=estimator)
            self._fit = fit if getattr(estimator, "_skl_callbacks", None) else None

    def answered(self) -> None:
        """Tell that one more question was answered."""
        if self._fit is not None:
            question = self._fit.subcontext(task_name="question")
            question.call_on_fit_task_begin(estimator=self._estimator)
            # a callback may ask to stop early: no, since everything is paid for
            question.call_on_fit_task_end(estimator=self._estimator)

    def finished(self) -> None:
        """Tell that the fit is done."""
        if self._fit is not None:
            self._fit.call_on_fit_task_end(estimator=self._estimator)
