"""Checking promises: audit (statistical), beside certify (exact)."""

from geoveil.audit.auditor import AuditReport, audit
from geoveil.report.certify import Certificate, certify

__all__ = ["AuditReport", "Certificate", "audit", "certify"]
