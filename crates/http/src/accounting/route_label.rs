//! Labels with which samples of processor time name the route of a request.

use std::sync::LazyLock;

use profiler::Label;
use routes::{CLASSES, Class};

/// How the frames of routes begin.
pub const FRAME_PREFIX: &str = "route ";

/// By the numbers of classes.
static LABELS: LazyLock<Vec<Label>> = LazyLock::new(|| {
    let frames = CLASSES.iter().map(|class| frame_of(*class));
    frames.map(|frame| Label::new(&frame)).collect()
});

/// Returns the frame of a route in profiles of processor time.
pub fn frame_of(class: Class) -> String {
    format!("{FRAME_PREFIX}{}", class.name())
}

/// Returns the class with a name.
pub fn class_named(name: &str) -> Option<Class> {
    let mut classes = CLASSES.iter().copied();
    classes.find(|class| class.name() == name)
}

/// Returns the label of a route.
pub fn label_of(class: Class) -> &'static Label {
    &LABELS[class as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_own_label_and_is_found_by_its_name() {
        for class in CLASSES {
            assert_eq!(label_of(*class).name(), frame_of(*class));
            assert_eq!(class_named(class.name()), Some(*class));
        }
        assert_eq!(class_named("route find"), None);
    }
}
