"""Schedule templates, one a file, in the order in which a task tries them; the first that can compute a task takes it."""

from taskc.schedules import elementwise, matmul_mma, matmul_simt, rows, transpose
from taskc.schedules.template import Template, Traits, traits_of

TEMPLATES: tuple[Template, ...] = (matmul_mma, matmul_simt, rows, transpose, elementwise)

__all__ = ["TEMPLATES", "Template", "Traits", "traits_of"]
