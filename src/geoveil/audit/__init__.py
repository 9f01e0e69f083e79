"""Checking promises: certify (exact) and audit (statistical)."""

from geoveil.audit.certify import Certificate, certify

__all__ = ["Certificate", "certify"]
