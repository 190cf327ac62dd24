"""Mutations of prefix sums with correlated noise, in the form of the table of mutations."""

# fmt: off
MUTATIONS = {
    "mechanisms.correlated_noise": [
        ("(k - 0.5) / k", "(k - 0.6) / k", "participation_norms"),
        ("range(0, self.n_steps, period)", "range(0, self.n_steps - period, period)", "participation_norms"),
        ("range(0, self.n_steps, period)", "range(0, 1)", "fit: ftrl"),
        ("places) % kept], past", "places - 1) % kept], past", "factorisations"),
        ("past[t % kept] = x", "past[t % kept] = 0.5 * x", "release: prefix sums, root, 1, add_remove"),
        ("x = draw(1)[0]", "x = draw(1)[0] * (t < 1)", "release: prefix sums, root, 3, add_remove"),
        # one tree node too few
        ("range(self.n_steps.bit_length())", "range(self.n_steps.bit_length() - 1)", "participation_norms"),
        ("range(self.n_steps.bit_length())", "range(self.n_steps.bit_length() - 1)", "fit: ftrl, restarts"),
        ("whole**2 * len(ends)", "whole * len(ends)", "participation_norms"),
        ("2 * whole + 1)", "1)", "participation_norms"),
        ("width if self.refined else 2 * width", "2 * width", "fit: ftrl, honaker"),
        ("estimate = own * fresh[level]", "estimate = fresh[0]", "factorisations"),
        ("own = self._variance(level)", "own = 0.1", "release: prefix sums, honaker, 1, add_remove"),
        ("estimate = draw(1)[0]\n", "estimate = nodes[0] if 0 in nodes else draw(1)[0]\n", "factorisations"),
        ("return sqrt(self.n_passes) * self.inner", "return self.inner", "participation_norms"),
        ("return sqrt(self.n_passes) * self.inner", "return self.inner", "fit: ftrl, restarts"),
        ("before = before + row", "before = 0 * row", "factorisations"),
    ],
    "mechanisms.prefix_sums": [
        ("return self.clip_norm * norm * (contributions(self.neighbours) + rounding)",
         "return self.clip_norm * norm * (1 + rounding)", "prefix_sums"),
        ("return self.clip_norm * norm * (contributions", "return norm * (contributions", "fit: ftrl, whole root"),
        ("participation_norm(self.steps_in_pass)", "participation_norm(self.factorisation.n_steps)", "prefix_sums"),
        ("self.sensitivity / self.mu", "self.sensitivity / self.mu / 2", "prefix_sums"),
        ("gradient_sum(weights, self.clip_norm)", "gradient_sum(weights, 2 * self.clip_norm)", "prefix_sums"),
        ("batches[t % len(batches)]", "batches[0]", "prefix_sums"),
        ("batches[t % len(batches)]", "batches[(t + t // len(batches)) % len(batches)]", "prefix_sums"),
        ("round_to_grid(total + correlated, scale)", "total + 0 * correlated",
         "release: prefix sums, tree, 3, add_remove"),
        ("round_to_grid(total + correlated, scale)", "total + correlated", "release: prefix sums, tree, 1, add_remove"),
        ("noise.normal((count, *total.shape), scale)",
         "noise.normal((count, len(total), *[1] * (total.ndim - 1)), scale) + 0 * total",
         "release: prefix sums, root, 3, add_remove"),
        ("steps * (rounding_allowance(b, self.n_features) + 2 * steps * b * 2.0**-53)", "0", "rounding"),
    ],
}
# fmt: on
