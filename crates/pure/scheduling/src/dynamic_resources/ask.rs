//! The requests of claims, with each selector replaced by the number of its expression.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::cel::{Fault, Program};
use model::devices::{
    AllocationMode, DeviceAsk, DeviceConstraint, DeviceRequest, RequestKind, ResourceClaim,
};

/// Expressions and their numbers. Equal expressions have the same number.
#[derive(Debug, Default)]
pub(super) struct Expressions {
    numbers: BTreeMap<String, usize>,
    all: Vec<(String, OnceLock<Result<Program, Fault>>)>,
}

impl Expressions {
    pub(super) fn number(&mut self, text: &str) -> usize {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.all.len();
        self.numbers.insert(text.to_owned(), number);
        self.all.push((text.to_owned(), OnceLock::new()));
        number
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn program(&self, number: usize) -> Result<&Program, Fault> {
        let (text, program) = &self.all[number];
        program.get_or_init(|| Program::parse(text)).as_ref().map_err(Clone::clone)
    }

    pub(super) fn text(&self, number: usize) -> &str {
        &self.all[number].0
    }
}

/// The requests and constraints of a claim.
#[derive(Debug, Default)]
pub(super) struct ClaimAsk {
    /// `namespace/name`.
    pub name: String,
    pub requests: Vec<Request>,
    pub constraints: Vec<DeviceConstraint>,
}

/// A request of a claim.
#[derive(Debug)]
pub(super) struct Request {
    pub name: String,
    /// The alternatives of the request. The first one that is available is used.
    pub asks: Vec<Ask>,
    /// Whether this is a `firstAvailable` request.
    pub prioritized: bool,
}

/// Requested devices.
#[derive(Debug)]
pub(super) struct Ask {
    pub object: DeviceAsk,
    /// The numbers of the request's selectors. `None` stands for a selector that is not a CEL expression.
    pub selectors: Vec<Option<usize>>,
}

impl ClaimAsk {
    pub(super) fn of(claim: &ResourceClaim, expressions: &mut Expressions) -> Self {
        Self {
            name: format!("{}/{}", claim.namespace, claim.name),
            requests: claim.requests.iter().map(|request| Request::of(request, expressions)).collect(),
            constraints: claim.constraints.clone(),
        }
    }

    /// Creates requests for the devices that provide a pod's extended resources. `wanted` contains the name
    /// of each resource, its class and the number of devices.
    pub(super) fn of_classes(
        pod: String,
        wanted: impl IntoIterator<Item = (String, String, i64)>,
    ) -> Arc<Self> {
        let request = |(resource, class, count)| {
            let object = DeviceAsk { class, mode: AllocationMode::ExactCount(count), ..DeviceAsk::default() };
            Request { name: resource, asks: vec![Ask { object, selectors: Vec::new() }], prioritized: false }
        };
        let requests = wanted.into_iter().map(request).collect();
        Arc::new(Self { name: pod, requests, constraints: Vec::new() })
    }
}

impl Request {
    fn of(request: &DeviceRequest, expressions: &mut Expressions) -> Self {
        let mut ask = |object: &DeviceAsk| {
            let selectors = object.selectors.iter();
            let selectors = selectors.map(|one| one.as_ref().map(|text| expressions.number(text)));
            Ask { selectors: selectors.collect(), object: object.clone() }
        };
        let (asks, prioritized) = match &request.kind {
            RequestKind::Exactly(one) => (vec![ask(one)], false),
            RequestKind::FirstAvailable(all) => (all.iter().map(ask).collect(), true),
            RequestKind::Unknown => (Vec::new(), false),
        };
        Self { name: request.name.clone(), asks, prioritized }
    }
}
