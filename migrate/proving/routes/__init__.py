"""Which routes of an application a package can keep: found and proved in the sandbox."""
