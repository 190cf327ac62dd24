"""The part of the table of mutations that is about Hessians and Newton's method."""

# fmt: off
NEWTON = {
    "mechanisms.hessian": [
        ("exact = sqrt(self.n_outputs * contributions", "exact = sqrt(contributions", "hessians"),
        ("exact = sqrt(self.n_outputs * contributions(self.neighbours))", "exact = sqrt(self.n_outputs)", "hessians"),
        ("exact = sqrt(self.n_outputs * contributions(self.neighbours))",
         "exact = self.n_outputs * contributions(self.neighbours)", "hessians"),
        ("rounding = sqrt(self.n_outputs) *", "rounding = 0 *", "rounding"),
        ("self.sensitivity / self.mu", "self.sensitivity / self.mu / 2", "hessians"),
        ("self.row_norm**2 * (exact", "self.row_norm * (exact", "release: hessian, 1, add_remove"),
        ("/ loss.curvature_bound).T", "/ (0.5 * loss.curvature_bound)).T", "release: hessian, 1, add_remove"),
        ("np.clip(share, 0, 1)", "3 * share", "hessians"),
        ("if problem.row_bound > self.row_norm:", "if False:", "guards"),
        ("if problem.n_outputs != self.n_outputs:", "if False:", "guards"),
        ("add_symmetric_normal(noise, gram, self.noise_scale) for gram in grams",
         "add_symmetric_normal(noise, gram, self.noise_scale * (k == 0)) for k, gram in enumerate(grams)",
         "release: hessian, 3, add_remove"),
    ],
    "solvers.newton": [
        ("sqrt((1 - share) / n_steps)", "sqrt(1 / n_steps)", "fit: newton"),
        ("sqrt((1 - share) / n_steps)", "(1 - share) / n_steps", "fit: newton"),
        ("each = mu * sqrt(share / n_matrices)", "each = mu * sqrt(share)", "fit: newton, majorant"),
        ("each = mu * sqrt(share / n_matrices)", "each = mu * share / n_matrices", "fit: newton, exact"),
        ("SecondMoment(facts.row_norm,", "SecondMoment(facts.data_norm,", "fit: newton"),
        ("GaussianHessian(facts.row_norm,", "GaussianHessian(facts.data_norm,", "fit: newton, exact"),
        ('self.hessian == "majorant", facts.n_outputs,', 'self.hessian == "majorant", 1,',
         "fit: newton, majorant / logistic / 3"),
        ("(gradient, n_steps))", "(gradient, 1))", "fit: newton"),
        ("if t < n_matrices:", "if t < n_matrices + 1:", "fit: newton"),
    ],
}
