//! What the devices of a claim must, or must not, have in common.

use model::devices::{Attribute, ConstraintKind, Device, DeviceConstraint};

/// A constraint, with the devices that have been chosen so far.
#[derive(Debug)]
pub(super) struct Constraint<'c> {
    object: &'c DeviceConstraint,
    /// The values of the constraint's attribute on the chosen devices to which the constraint applies.
    chosen: Vec<Attribute>,
    /// The attribute's value on the device that was chosen first. It is kept even if the search gives that
    /// device back.
    first: Option<Attribute>,
}

impl<'c> Constraint<'c> {
    pub(super) fn new(object: &'c DeviceConstraint) -> Self {
        Self { object, chosen: Vec::new(), first: None }
    }

    /// Adds a device if the constraint allows it. Returns whether the device is allowed.
    pub(super) fn add(&mut self, request: &str, sub: Option<&str>, driver: &str, device: &Device) -> bool {
        if !self.concerns(request, sub) {
            return true;
        }
        let name = match &self.object.kind {
            ConstraintKind::Match(name) | ConstraintKind::Distinct(name) => name,
            ConstraintKind::Unknown => return false,
        };
        let Some(own) = attribute(device, driver, name) else { return false };
        let holds = match self.object.kind {
            ConstraintKind::Match(_) if self.chosen.is_empty() => {
                self.first = Some(own.clone());
                true
            }
            ConstraintKind::Match(_) => is_simple(own) && self.first.as_ref() == Some(own),
            _ => self.chosen.is_empty() || is_simple(own) && !self.chosen.contains(own),
        };
        if holds {
            self.chosen.push(own.clone());
        }
        holds
    }

    /// Removes the device that was added last.
    pub(super) fn remove(&mut self, request: &str, sub: Option<&str>) {
        if self.concerns(request, sub) {
            self.chosen.pop();
        }
    }

    fn concerns(&self, request: &str, sub: Option<&str>) -> bool {
        let all = &self.object.requests;
        all.is_empty()
            || all.iter().any(|one| one == request)
            || sub.is_some_and(|sub| all.iter().any(|one| one.split_once('/') == Some((request, sub))))
    }
}

/// Whether an attribute is a single value of a known type. Other attributes match nothing.
fn is_simple(attribute: &Attribute) -> bool {
    matches!(attribute, Attribute::String(_) | Attribute::Int(_) | Attribute::Bool(_) | Attribute::Version(_))
}

/// The attribute with this full name. A name without a domain belongs to the driver's domain.
fn attribute<'d>(device: &'d Device, driver: &str, name: &str) -> Option<&'d Attribute> {
    device.attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        (domain == driver).then(|| device.attributes.get(id)).flatten()
    })
}
