//! A booted VM becomes a Node.
