"""All data, no decisions: dtypes, dims, index expressions, values, mappings, tasks, graphs and programs."""

from taskc.ir import arithmetic as arithmetic  # with any module of this package, so that every expression has its // and %
