"""`magnetar admin metadata`: backups of metadata, and reconciliation after a restoration."""
