"""Plan → manifests, one file per kind. Pure: same plan, same bytes."""
