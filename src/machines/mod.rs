//! Machines: records, slots, create, retire, reconcile.
