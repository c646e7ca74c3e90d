"""What every wing of the runtime stands on: sessions, configuration, fingerprints, files that appear whole."""
