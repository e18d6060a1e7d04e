"""What every gRPC service of Magnetar and its clients have in common."""
