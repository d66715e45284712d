//! Codes: the names of enum variants in JSON, in metric labels and in messages. Users rely on codes, so a
//! code stays the same even if its variant is renamed.

/// Gives an enum the constant `ALL` and the method `code()`. The compiler reports an error if a variant is
/// missing.
#[macro_export]
macro_rules! codes {
    ($name:ty { $($variant:ident => $code:literal),* $(,)? }) => {
        impl $name {
            /// All variants.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name of the variant in JSON, in metric labels and in messages.
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)*
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use crate::drain::Blocking;
    use crate::gang::GangReason;
    use crate::machine::Phase;
    use crate::plan::{BufferOutcome, NodeOutcome, PodOutcome, RemovalReason, RequestOutcome};
    use crate::power::HostOutcome;

    fn all<T: Copy + Serialize>(all: &[T], code: impl Fn(T) -> &'static str) {
        for one in all {
            assert_eq!(serde_json::to_value(one).unwrap(), code(*one));
        }
    }

    #[test]
    fn what_stands_in_json_is_the_code() {
        all(NodeOutcome::ALL, NodeOutcome::code);
        all(PodOutcome::ALL, PodOutcome::code);
        all(BufferOutcome::ALL, BufferOutcome::code);
        all(RequestOutcome::ALL, RequestOutcome::code);
        all(HostOutcome::ALL, HostOutcome::code);
        all(RemovalReason::ALL, RemovalReason::code);
        all(GangReason::ALL, GangReason::code);
        all(Phase::ALL, Phase::code);
        all(Blocking::ALL, Blocking::code);
    }
}
