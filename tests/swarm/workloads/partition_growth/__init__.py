"""The workload `partition-growth`: growing partitioned topics, lists of topics, patterns and table views."""
