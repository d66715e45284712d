//! What the devices of a claim have in common, or not.

use model::devices::{Attribute, ConstraintKind, Device, DeviceConstraint};

/// A constraint with the devices that were chosen so far.
#[derive(Debug)]
pub(super) struct Constraint<'c> {
    object: &'c DeviceConstraint,
    /// The attributes of the devices that it holds for.
    chosen: Vec<Attribute>,
    /// The attribute of the first of them, which stays when that one is given back.
    first: Option<Attribute>,
}

impl<'c> Constraint<'c> {
    pub(super) fn new(object: &'c DeviceConstraint) -> Self {
        Self { object, chosen: Vec::new(), first: None }
    }

    /// Takes a device in, if the constraint goes on holding.
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

    /// Gives back the device that was taken in last.
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

/// Values of other kinds match nothing.
fn is_simple(attribute: &Attribute) -> bool {
    matches!(attribute, Attribute::String(_) | Attribute::Int(_) | Attribute::Bool(_) | Attribute::Version(_))
}

/// The attribute of this full name; one without a domain is of the driver's.
fn attribute<'d>(device: &'d Device, driver: &str, name: &str) -> Option<&'d Attribute> {
    device.attributes.get(name).or_else(|| {
        let (domain, id) = name.split_once('/')?;
        (domain == driver).then(|| device.attributes.get(id)).flatten()
    })
}
