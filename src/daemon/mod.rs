//! The round: snapshot, plan, act.
