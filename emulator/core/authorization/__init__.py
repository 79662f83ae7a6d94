"""Authorization: the permissions that operations require, the grants of namespaces, and the rule that compares them."""
