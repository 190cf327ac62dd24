"""Change a line of dpskl for the length of a test, to see that a check notices."""

import inspect
import sys
import types
from contextlib import contextmanager

from dpskl.solvers import Solver


@contextmanager
def mutated(module, before, after):
    """Run the body with ``before`` replaced by ``after`` wherever it stands in the source of ``module``.

    Functions and methods get the code of the changed module and stay the objects they are, so that whoever imported
    them calls what is changed. Constants of the module are replaced in it.
    """
    source = inspect.getsource(module)
    if before not in source:
        raise LookupError(f"{module.__name__} no longer says {before!r}: write the mutation anew, do not drop it")
    changed = types.ModuleType(module.__name__)
    changed.__dict__.update(__file__=module.__file__, __package__=module.__package__)
    registry = dict(Solver._registry)
    exec(compile(source.replace(before, after), module.__file__, "exec"), changed.__dict__)
    Solver._registry.update(registry)
    undo = list(_transplant(module, module.__dict__, changed.__dict__))
    assert undo, "the mutation changes no code"
    try:
        _clear_caches()
        yield
    finally:
        for restore in undo:
            restore()
        _clear_caches()


def _transplant(owner, old, new):
    for name, value in list(new.items()):
        present = old.get(name)
        if isinstance(value, type) and value.__module__ == old.get("__module__", old["__name__"]):
            yield from _transplant(present, vars(present), vars(value))
        elif isinstance(value, bool | int | float | tuple) and value != present:
            yield _set(owner, name, value)
        else:
            for mine, theirs in zip(_functions(present), _functions(value), strict=True):
                # what a dataclass has written is in no file
                if mine.__code__ != theirs.__code__ and mine.__code__.co_filename != "<string>":
                    yield _set(mine, "__code__", theirs.__code__)


def _functions(value):
    """Return the function behind a function, a property, a class method or a cached function, in a list."""
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    value = inspect.unwrap(value) if hasattr(value, "cache_clear") else value
    return [value] if isinstance(value, types.FunctionType) else []


def _set(owner, name, value):
    was = getattr(owner, name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, was)


def _clear_caches():
    for name, module in list(sys.modules.items()):
        if name.startswith("dpskl"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
