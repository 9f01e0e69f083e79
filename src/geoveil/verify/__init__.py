"""Checking promises: audit (statistical), beside certify (exact)."""

from geoveil.document.certify import Certificate, certify
from geoveil.verify.auditor import AuditReport, audit

__all__ = ["AuditReport", "Certificate", "audit", "certify"]
