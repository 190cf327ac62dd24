"""The part of the table of mutations that is about the histogram of scores that an evaluation releases."""

CONSTANT = "noise.add_normal(sums, scale)"

# fmt: off
METRICS = {
    "mechanisms.score_histogram": [
        ("exact = 1.0", "exact = 0.5", "score_histogram"),
        ("exact = 1.0", "exact = 2.0", "score_histogram"),
        ("scores * (2 - 2 * float(products.min()))", "scores * 2", "score_histogram"),
        ("scores * (2 - 2 * float(products.min()))", "scores * 4", "score_histogram"),
        ("sqrt(2 * confusion + scores", "sqrt(confusion + scores", "score_histogram"),
        ("if contributions(self.neighbours) == 2:", "if False:", "score_histogram"),
        ("return self.sensitivity / self.mu", "return self.sensitivity / self.mu / 2", "score_histogram"),
        ("return self.sensitivity / self.mu", "return self.sensitivity / self.mu * 2", "score_histogram"),
        ("return GaussianCost(self.mu)", "return GaussianCost(self.mu / 2)", "score_histogram"),
        ("return GaussianCost(self.mu)", "return GaussianCost(2 * self.mu)", "score_histogram"),
        ("powers * (n_cells / powers.sum())", "powers * (4 * n_cells / powers.sum())", "score_histogram"),
        ("np.sqrt(circle_powers(n_cells))", "circle_powers(n_cells)", "score_histogram"),
        ("return sqrt(confusion), sqrt(scores)", "return confusion, scores", "score_histogram"),
        ("return sqrt(confusion), sqrt(scores)", "return 1.0, 1.0", "score_histogram"),
        ("CONFUSION_SHARE, 1 - CONFUSION_SHARE", "CONFUSION_SHARE, 1.0", "score_histogram"),
        ("minlength=self.n_cells)", "minlength=self.n_cells) * 2", "score_histogram"),
        (CONSTANT, "sums + noise.normal((1,), scale)", "score_noise"),
        (CONSTANT, "noise.add_normal(sums, 0.5 * scale)", "score_noise"),
        (CONSTANT, "noise.add_normal(sums, 0.5 * scale)", "score_histogram"),
        ("noise.add_normal(np.concatenate([table, sums]), scale)",
         "np.concatenate([table, noise.add_normal(sums, scale)])", "score_noise"),
        ("noise.add_normal(np.concatenate([table, sums]), scale)",
         "np.concatenate([noise.add_normal(table, scale), sums])", "score_noise"),
        ("return np.clip(places, 0, self.n_bins - 1)", "return places", "score_histogram"),
        ("2 * self.n_samples * self.n_cells * 2.0**-53", "0", "score_rounding"),
    ],
}
# fmt: on
