"""Discovery's command handlers; they own no sockets and no tasks."""
