//! Errors with their causes.

/// Returns an error and its causes in one line. A cause is left out if the text before it already ends with
/// the same words.
pub fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.ends_with(&cause) { text } else { format!("{text}: {cause}") }
    })
}

/// Returns the root cause. The errors above it only name the operation that failed.
pub fn root(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().unwrap_or(error).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Told {
        text: &'static str,
        source: Option<Box<Self>>,
    }

    #[test]
    fn a_cause_that_its_error_repeats_is_told_once() {
        let told = |text, source| Told { text, source: Option::map(source, Box::new) };
        let plain = told("cannot list", Some(told("client error", Some(told("refused", None)))));
        assert_eq!(chain(&plain), "cannot list: client error: refused");
        assert_eq!(root(&plain), "refused");
        let repeated = told("cannot list: refused", Some(told("refused", None)));
        assert_eq!(chain(&repeated), "cannot list: refused");
    }
}
