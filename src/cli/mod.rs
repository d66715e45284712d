//! What an operator types: one file a command.
