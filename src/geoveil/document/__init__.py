"""What leaves a device: integer tables to draw from, documents, and certificates of what they claim."""

from geoveil.document.canonical import canonical_bytes, document_id
from geoveil.document.exact import ExactTable, IntegerElastic
from geoveil.document.saved import (
    load_mechanism,
    mechanism_from_dict,
    mechanism_to_dict,
    save_mechanism,
)
from geoveil.document.wire import MechanismDocument, RefusedDocument, publish

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
