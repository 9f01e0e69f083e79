"""What leaves a device: exact integer tables to draw from, and mechanism documents."""

from geoveil.report.document import (
    canonical_bytes,
    document_id,
    load_mechanism,
    mechanism_from_dict,
    mechanism_to_dict,
    save_mechanism,
)
from geoveil.report.table import ExactTable

__all__ = [
    "ExactTable",
    "canonical_bytes",
    "document_id",
    "load_mechanism",
    "mechanism_from_dict",
    "mechanism_to_dict",
    "save_mechanism",
]
