"""Checking promises: certify (exact) and audit (statistical)."""

from geoveil.audit.auditor import AuditReport, audit
from geoveil.audit.certify import Certificate, certify

__all__ = ["AuditReport", "Certificate", "audit", "certify"]
