"""Mutations of the choice of vertices, as in mutations.py."""

# fmt: off
VERTICES = {
    "mechanisms.vertex_selection": [
        ("spread = self.sensitivity", "spread = 0.5 * self.sensitivity", "fit: frank_wolfe"),
        ("gradient(weights, self.clip)", "gradient(weights, 2 * self.clip)",
         "choice: vertex_choice, 1, add_remove, gumbel"),
        ("np.concatenate([slopes, -slopes])", "np.concatenate([slopes, slopes])",
         "choice: vertex_choice, 3, replace_one, gumbel"),
    ],
    "records.entries": [
        ("np.clip(X, -self.clip, self.clip, out=X)", "X", "clipped_entries"),
        ("np.minimum(scale, self.clip)", "scale", "clipped_entries"),
        ("np.clip(values, -self.clip, self.clip, out=values)", "pass", "clipped_entries"),
        ("np.minimum(problem.row_map[1], self.clip)", "problem.row_map[1]", "clipped_entries"),
        ("np.clip(X, -self.clip, self.clip, out=X)", "np.minimum(X, self.clip, out=X)",
         "choice: vertex_choice, 3, add_remove, exponential"),
    ],
    "solvers.frank_wolfe": [
        ("bounded_range_epsilon(epsilon, delta, rounds)", "bounded_range_epsilon(epsilon, delta, 1)",
         "fit: frank_wolfe"),
        ("bounded_range_epsilon(epsilon, delta, rounds)", "bounded_range_epsilon(epsilon, delta, 2 * rounds)",
         "fit: frank_wolfe, pure"),
        ("((question, rounds),), 1", "((question, 2 * rounds),), 1", "fit: frank_wolfe"),
    ],
}
# fmt: on
