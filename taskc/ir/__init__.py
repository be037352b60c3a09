"""All data, no decisions: dtypes, dims, index expressions, values, mappings, tasks, graphs and programs."""
