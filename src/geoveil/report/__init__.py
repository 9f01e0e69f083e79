"""What leaves a device: integer tables to draw from, documents, and certificates of what they claim."""

from geoveil.report.canonical import canonical_bytes, document_id
from geoveil.report.document import (
    load_mechanism,
    mechanism_from_dict,
    mechanism_to_dict,
    save_mechanism,
)
from geoveil.report.integer_elastic import IntegerElastic
from geoveil.report.table import ExactTable
from geoveil.report.wire import MechanismDocument, RefusedDocument, publish

__all__ = [
    "ExactTable",
    "IntegerElastic",
    "MechanismDocument",
    "RefusedDocument",
    "canonical_bytes",
    "document_id",
    "load_mechanism",
    "mechanism_from_dict",
    "mechanism_to_dict",
    "publish",
    "save_mechanism",
]
