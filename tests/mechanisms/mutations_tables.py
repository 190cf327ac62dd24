"""The part of the table of mutations that is about histograms of columns and of values that nobody declared."""

PLACES = "np.searchsorted(edges[1:-1], values[~np.isnan(values)]"

# fmt: off
TABLE_MUTATIONS = {
    "records.cells": [
        # a bound that is read from the data moves the cells of all records
        (PLACES, PLACES.replace("edges[1:-1]", "np.nanquantile(np.clip(column, -9, 9), SHARES)".replace(
            "SHARES", "np.linspace(0, 1, len(edges))[1:-1]")),
         "column_histograms"),
        (PLACES, PLACES.replace("edges[1:-1]", "edges[1:-1] - edges[0] + min(values[values == values], default=0.0)"),
         "cells"),
        ('side="right"', 'side="left"', "cells"),
        ("values[~np.isnan(values)]", "values", "cells"),
        ("total += np.bincount", "total += 2 * np.bincount", "column_histograms"),
        ("total += np.bincount", "total[:] = np.bincount", "cells"),
        ("(column, own) for column, own in zip(self._columns, self.edges, strict=True)",
         "(column, own) for column in self._columns for own in self.edges", "column_histograms"),
    ],
    "mechanisms.column_histograms": [
        ("sqrt(n_columns * contributions(neighbours))", "sqrt(contributions(neighbours))", "column_histograms"),
        ("sqrt(n_columns * contributions(neighbours))", "sqrt(contributions(neighbours))", "stable_delta"),
        ("sqrt(n_columns * contributions(neighbours))", "sqrt(n_columns)", "column_histograms"),
        ("sqrt(n_columns * contributions(neighbours))", "sqrt(n_columns)", "stable_counts"),
        ("sqrt(n_columns * contributions(neighbours))", "n_columns * contributions(neighbours)", "column_histograms"),
        ("self.sensitivity / self.mu", "self.sensitivity / self.mu / 2", "column_histograms"),
        ("self.sensitivity / self.mu", "self.sensitivity / self.mu / 2", "column_audit"),
        ("self.sensitivity / self.mu", "self.sensitivity / self.mu * 2", "column_histograms"),
        ("GaussianCost(self.mu)", "GaussianCost(self.mu / 2)", "column_histograms"),
        ("GaussianCost(self.mu)", "GaussianCost(self.mu * 2)", "column_histograms"),
        ("np.float64), self.noise_scale)", "np.float64), self.noise_scale) * (np.arange(sum(map(len, counts))) > 0)",
         "column_noise"),
        ("noise.add_normal(np.concatenate(counts).astype(np.float64), self.noise_scale)",
         "noise.add_normal(np.zeros(1), self.noise_scale) + np.concatenate(counts)", "column_noise"),
        ("if cells.n_columns > self.n_columns:", "if False:", "histogram_guards"),
    ],
    "records.values": [
        ("int(number) if number.is_integer() else number", "number", "values"),
        ("return whole if", "return value if", "values"),
        ("if number != number:", "if False:", "values"),
        ("if len(value) <= LONGEST else None", "", "values"),
        ("str.__str__(value)", "value", "values"),
        ("dict(sorted(own.items(), key=_by_kind))", "own", "values"),
    ],
    "mechanisms.stable_histogram": [
        # the threshold without its delta, or with that of one column
        ("ceil((1 - scale * float(ndtri(each))) / grid)", "ceil(1 / grid)", "stable_delta"),
        ("ceil((1 - scale * float(ndtri(each))) / grid)", "ceil(1 / grid)", "stable_audit"),
        ("each = -expm1(log1p(-self.delta) / self.n_columns)", "each = self.delta", "stable_delta"),
        ("each = -expm1(log1p(-self.delta) / self.n_columns)", "each = self.delta", "stable_audit"),
        ("each = -expm1(log1p(-self.delta) / self.n_columns)", "each = 2 * self.delta", "stable_audit"),
        ("each = -expm1(log1p(-self.delta) / self.n_columns)",
         "each = -expm1(log1p(-self.delta) / self.n_columns) / 2", "stable_delta"),
        ("(1 - scale * float", "(0 - scale * float", "stable_delta"),
        ("ceil(", "floor(", "stable_grid"),
        ("if count > self.threshold", "if count >= self.threshold - 2.0**(floor(log2(self.noise_scale)) - 20)",
         "stable_grid"),
        ("if count > self.threshold", "if count > self.threshold / 2", "stable_delta"),
        (", ApproximateCost(0.0, self.delta)]", "]", "stable_delta"),
        ("ApproximateCost(0.0, self.delta)", "ApproximateCost(0.0, self.delta / 2)", "stable_delta"),
        ("ApproximateCost(0.0, self.delta)", "ApproximateCost(0.0, self.delta * 2)", "stable_delta"),
        ("GaussianCost(self.mu)", "GaussianCost(self.mu / 2)", "stable_delta"),
        ("self.sensitivity / self.mu", "self.sensitivity / self.mu / 2", "stable_delta"),
        ("self.sensitivity / self.mu", "self.sensitivity / self.mu / 2", "censored_counts"),
        ("noise.add_normal(exact, self.noise_scale)", "(exact + noise.normal(1, self.noise_scale))", "stable_noise"),
        ("(delta - unseen) / (1 - unseen)", "delta", "stable_delta"),
        ("if values.n_columns > self.n_columns:", "if False:", "histogram_guards"),
    ],
}
# fmt: on
