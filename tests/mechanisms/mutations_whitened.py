"""The part of the table of mutations that is about second moments and the gradients that they whiten."""

STRETCH = "(sqrt(MOST_DIRECTIONS) + 5) * self._unit / self.shortest**2"
SUMS = "16 * self._unit / self.shortest"
PROJECTIONS = "np.square(self._block_scores(block, turned)) @ lost"

# fmt: off
WHITENED = {
    "mechanisms.second_moment": [
        ("exact = sqrt(contributions(self.neighbours))", "exact = 1.0", "moments_of_rows"),
        ("exact = sqrt(contributions(self.neighbours))", "exact = contributions(self.neighbours)", "moments_of_rows"),
        ("if problem.row_bound > self.row_norm:", "if False:", "guards"),
        ("if not problem.intercept:", "if False:", "guards"),
        ("self.row_norm**2 * (exact", "self.row_norm * (exact", "release: second moment, add_remove"),
        ("sqrt(2) * gram[upper]", "gram[upper]", "release: second moment, add_remove"),
        ("sqrt(2) * gram[upper]", "2 * gram[upper]", "moments_of_rows"),
        ("moment[upper] = noisy[len(gram) :] / sqrt(2)", "moment[upper] = noisy[len(gram) :] / 2",
         "release: second moment, add_remove"),
        ("moment[upper] = noisy[len(gram) :] / sqrt(2)", "moment[upper] = gram[upper]", "moments_of_rows"),
        ("moment.T[upper] = moment[upper]", "moment.T[upper] = gram[upper]", "moments_of_rows"),
        ("self.sensitivity / self.mu", "self.sensitivity / self.mu / 2", "moments_of_rows"),
        ("return noise.add_normal(diagonal, self.noise_scale)",
         "return diagonal + noise.normal((1,), self.noise_scale)", "release: diagonal moment, add_remove"),
        # the weight of the entries off the diagonal, at both ends
        ("sqrt(2) * column", "column", "release: arrow of the moment, add_remove"),
        ("sqrt(2) * column", "2 * column", "moments_of_rows"),
        ("noisy[len(diagonal) :] / sqrt(2)", "noisy[len(diagonal) :]", "release: arrow of the moment, replace_one"),
        ("noisy[len(diagonal) :] / sqrt(2)", "column", "moments_of_rows"),
        ("diagonal = noisy[: len(diagonal)]", "pass", "moments_of_rows"),
        ("np.append(noisy[len(diagonal) :] / sqrt(2), diagonal[-1])",
         "np.append(noisy[len(diagonal) :] / sqrt(2), problem.squared_column_norms()[-1])", "moments_of_rows"),
    ],
    "mechanisms.whitened_gradient": [
        ("self.sensitivity / self.mu", "self.sensitivity / self.mu / 2", "whitened_gradients"),
        ("return contributions(self.neighbours) + rounding", "return 1 + rounding", "whitened_gradients"),
        ("clip_norm / (1 + 2 * self._stretch), whitener.transform", "2 * clip_norm, whitener.transform",
         "whitened_gradients"),
        ("clip_norm / (1 + 2 * self._stretch), whitener.transform", "clip_norm", "whitened_gradients"),
        ("clip_norm / (1 + 2 * self._stretch), whitener.transform", "clip_norm, whitener.transform",
         "shortened_rows"),
        ("(whitener.to_whitened(clipped) / clip_norm", "(whitener.to_whitened(clipped)",
         "release: whitened gradient, 3, add_remove"),
        ("rounding = self.condition * ", "rounding = ", "rounding"),
        (" + 2 * self.n_samples * self._stretch_of_sums", "", "rounding"),
        (SUMS, SUMS.removesuffix(" / self.shortest"), "wide_rows"),
        (SUMS, SUMS.replace("16 ", "8 "), "wide_rows"),
        (STRETCH, STRETCH.removesuffix(" / self.shortest**2"), "shortened_rows"),
        (STRETCH, STRETCH.removesuffix("**2"), "shortened_rows"),
        (STRETCH, STRETCH.replace("+ 5", "+ 5 - 6"), "shortened_rows"),
        ("if self.shortest == 1:", "if True:", "shortened_rows"),
        ("whitener.condition > self.condition or ", "", "guards"),
        (" or whitener.shortest < self.shortest", "", "guards"),
    ],
    "mechanisms.whitener": [
        ("return self.matrix.T @ gradient if", "return 0.1 * self.matrix.T @ gradient if", "whitened_gradients"),
        ("sqrt((top + ridge) / ridge)", "sqrt(top / ridge) / 2", "whitener"),
        ("self.scales = 1 / np.sqrt(values + ridge)", "self.scales = 1 / np.sqrt(values + 2 * ridge)", "whitener"),
        ("whitener_condition(ridge, top) / self.shortest", "whitener_condition(ridge, top)", "whitener"),
        ("return self.transform.shorten((self.transform.scales * gradient.T).T)",
         "return (self.transform.scales * gradient.T).T", "whitened_gradients"),
        # no direction becomes shorter than what is paid for
        ("sqrt(level / (dimension + 1))", "sqrt(level / dimension)", "shortened_rows"),
        ("most = len(values) + 1", "most = 9 * len(values)", "shortened_rows"),
        ("found[:MOST_DIRECTIONS]", "found", "shortened_rows"),
    ],
    "records.scaling": [
        ("return self._along(v, self.factors - 1)", "return self._along(v, 0 * self.factors)", "whitened_gradients"),
    ],
    "records.design": [
        (PROJECTIONS, "2 * " + PROJECTIONS, "whitened_gradients"),
        ("turned = transform.scales[:, None] * transform.directions", "turned = 2 * transform.directions",
         "whitened_gradients"),
    ],
    "solvers.whitened_gd": [
        ("sqrt((1 - share) / n_steps)", "sqrt(1 / n_steps)", "fit: whitened"),
        ("sqrt((1 - share) / n_steps)", "(1 - share) / n_steps", "fit: whitened, common"),
        ("mu=mu * sqrt(share)", "mu=2 * mu * sqrt(share)", "fit: whitened, diagonal"),
        ("mu * sqrt(_SHARE)", "mu * sqrt(_SHARE) / 2", "fit: whitened"),
        ("SecondMoment(facts.data_norm,", "SecondMoment(1.0,", "fit: whitened"),
        ("SecondMoment(facts.data_norm,", "SecondMoment(1.0,", "fit: whitened, diagonal"),
        ("((moment, 1), (gradient, n_steps))", "((moment, 1), (gradient, 1))", "fit: whitened"),
        ("shortest = ScalingWhitener.shortest_of(descent.level, facts.n_weights)", "pass",
         "fit: whitened, common / hinge / 1"),
        ("facts.data_norm**2) / shortest", "facts.data_norm**2)", "fit: whitened, diagonal / huber / 3"),
    ],
}
# fmt: on
