"""The part of the table of mutations that is about solvers that learn from public records beside the private ones."""

# fmt: off
PUBLIC = {
    "solvers.adadps": [
        ("gradient.mu,", "2 * gradient.mu,", "fit: adadps"),
        ("gradient.mu,", "gradient.mu / 2,", "fit: adadps, all"),
        ("facts.neighbours,", "'add_remove',", "fit: adadps, all / logistic / 3 / replace_one"),
        ("on_samples(scaled, rate)", "on_samples(scaled, rate / 2)", "fit: adadps"),
        ("on_samples(scaled, rate)", "on_samples(scaled, min(1, 2 * rate))", "fit: adadps, given"),
        ("(on_samples(scaled, rate), n_steps)", "(on_samples(scaled, rate), 1)", "fit: adadps"),
    ],
    "solvers.mirror": [
        ("replace(plan, settings=mirror)", "replace(plan, settings=mirror, questions=((plan.questions[0][0], 1),))",
         "fit: pda_dpmd"),
        ("replace(plan, settings=mirror)", "replace(plan, settings=mirror, questions=((plan.questions[0][0], 8),))",
         "fit: pda_dpmd, exact"),
    ],
}
