"""A cluster of Magnetar beside a cluster of Apache Pulsar, on one machine in the same run."""
