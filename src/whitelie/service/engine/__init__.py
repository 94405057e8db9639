"""The engine: the commit pipeline, learners, administration, recounting and maintenance."""
