"""Every disk state that a power cut may leave: recorded, enumerated, opened, checked. See README.md."""
