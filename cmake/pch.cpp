// Carrier of the precompiled header that all tensor folders share.
