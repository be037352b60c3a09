"""Schedule templates, one a file. A task takes the best-ranked schedule of all templates that can compute it."""

from taskc.schedules import attention, elementwise, matmul_gemv, matmul_mma, matmul_simt, rows, transpose
from taskc.schedules.template import Template, Traits, traits_of

TEMPLATES: tuple[Template, ...] = (matmul_mma, matmul_gemv, matmul_simt, attention, rows, transpose, elementwise)

__all__ = ["TEMPLATES", "Template", "Traits", "traits_of"]
