"""The ground floor: devices, element types, files, caches. Knows nothing of the rooms above."""
