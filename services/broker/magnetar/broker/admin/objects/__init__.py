"""Operations shared by routes of an object: topics, partitions, subscriptions, namespaces, bundles."""
