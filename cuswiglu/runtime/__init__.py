"""Problems made ready on a device: descriptors, arguments, plans and launches."""
