"""The part of the table of mutations that is about scaled gradients and the solvers that ask for them."""

PAIR = "(GradientPair(gradient.mu, gradient.clip_norm, *size), rate), n_steps)"

# fmt: off
SCALED = {
    "records.design": [
        ("np.square(self._constants), factors[-1]", "np.square(self._constants), 0 * factors[-1]", "scaled_gradients"),
        ("out[rows] = squared(X) @", "out[rows] = 0.5 * squared(X) @", "scaled_gradients"),
    ],
    "records.problem": [
        ("max(1e-12, (self.n_weights + 8) * 2.0**-51)", "1e-12", "wide_rows"),
        ("self.products_of_squares(scales * scales)", "self.products_of_squares(scales)", "scaled_gradients"),
        ("self._squares[1][indices])", "self._squares[1][indices] / 2)", "scaled_gradients"),
        ("self._norms[1][indices])", "self._norms[1][indices] / 2)", "scaled_gradients"),
        ("norms = self.row_norms if transform is None else self._transformed_norms(transform)",
         "norms = self.row_norms", "scaled_gradients"),
        ('"ik,ik,ik->i", residuals, residuals, squares', '"ik,ik,ik->i", residuals, residuals, 0 * squares',
         "scaled_gradients"),
    ],
    "mechanisms.scaled_gradient": [
        ("return contributions(self.neighbours) + rounding", "return 1 + rounding", "scaled_gradients"),
        ("self.sensitivity / self.mu", "self.sensitivity / self.mu / 2", "scaled_gradients"),
        ("return sqrt(2) * self._scaled.sensitivity", "return self._scaled.sensitivity", "gradient_pairs"),
        ("return clipped * (scales / clip_norm)", "return clipped * (scales / clip_norm) * 2", "scaled_gradients"),
        ("clip_norm / (1 + 2 * self._stretch), scales", "2 * clip_norm, scales", "scaled_gradients"),
        ("problem.gradient_sum(weights, self.clip_norm) /", "problem.gradient_sum(weights) /", "gradient_pairs"),
        ("rounding_allowance(self.n_samples, self.n_features) +", "0 +", "rounding"),
        ("clip_norm / (1 + 2 * self._stretch), scales", "clip_norm, scales", "wide_rows"),
        # one gradient for the preconditioner and the step, without paying twice
        ("return sqrt(2) * self._scaled.sensitivity", "return self._scaled.sensitivity", "fit: dp2, extra"),
        ("np.stack([plain, scaled]), self.noise_scale)", "np.stack([plain, scaled]), self.noise_scale * "
         "np.array([0, 1]).reshape(2, *[1] * plain.ndim))", "scaled_noise"),
        ("weights), self.noise_scale)", "weights), 0 * self.noise_scale)", "scaled_noise"),
    ],
    "solvers.delayed": [
        ("ScaledGradient(gradient.mu, *size", "ScaledGradient(2 * gradient.mu, *size", "fit: dp2"),
        ("GradientPair(gradient.mu, gradient", "GradientPair(sqrt(2) * gradient.mu, gradient", "fit: dp2, extra"),
        (PAIR, PAIR.replace("n_steps", "n_steps - 1"), "fit: dp2, extra"),
    ],
}
# fmt: on
