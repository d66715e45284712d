use std::cell::Cell;
use std::collections::BTreeMap;

use super::*;
use model::amount::Amount;
use model::devices::{Attribute, Capacity, Device};

fn device() -> Value {
    let text = |text: &str| Attribute::String(text.to_owned());
    let attributes = [
        ("model", text("A100")),
        ("memory-kind", text("hbm")),
        ("index", Attribute::Int(3)),
        ("healthy", Attribute::Bool(true)),
        ("driverVersion", Attribute::Version("535.104.5-rc.1".to_owned())),
        ("other.example.com/slot", Attribute::Int(7)),
        ("modes", Attribute::Strings(vec!["mig".to_owned(), "vgpu".to_owned()])),
    ];
    let capacity = Capacity { value: Amount::read("80Gi").unwrap(), policy: None };
    let device = Device {
        name: "gpu-0".to_owned(),
        attributes: attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        capacity: BTreeMap::from([("memory".to_owned(), capacity)]),
        shared: true,
        ..Device::default()
    };
    value_of("gpu.example.com", &device).unwrap()
}

fn selects(expression: &str) -> Result<bool, Fault> {
    Program::parse(expression)?.selects(&device())
}

#[test]
fn what_is_true_of_a_device_selects_it() {
    for expression in [
        r#"device.driver == "gpu.example.com""#,
        r"device.driver == 'gpu.example.com' && device.allowMultipleAllocations",
        r#"device.attributes["gpu.example.com"].model == "A100""#,
        r#"device.attributes["gpu.example.com"]["memory-kind"] in ["hbm", "ddr"]"#,
        r#"device.attributes["gpu.example.com"].index >= 2 && device.attributes["gpu.example.com"].index < 4.5"#,
        r#"device.attributes["other.example.com"].slot == 7"#,
        r#"device.attributes["gpu.example.com"].healthy"#,
        r#"cel.bind(gpu, device.attributes["gpu.example.com"], gpu.healthy && gpu.model.startsWith("A"))"#,
        r#"device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0"#,
        r#"device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("79Gi"))"#,
        r#"device.capacity["gpu.example.com"].memory == quantity("80Gi")"#,
        r#"device.capacity["gpu.example.com"].memory.sub(quantity("80Gi")).sign() == 0"#,
        r#"quantity("1500m").isInteger() == false && quantity("2k").asInteger() == 2000"#,
        r#"device.attributes["gpu.example.com"].driverVersion.isLessThan(semver("535.104.5"))"#,
        r#"device.attributes["gpu.example.com"].driverVersion.major() == 535"#,
        r#"semver("v1.02", true).compareTo(semver("1.2.0")) == 0 && !isSemver("1.2")"#,
        r#"has(device.attributes["gpu.example.com"].model) && !has(device.attributes["gpu.example.com"].serial)"#,
        r#"!has(device.attributes["unknown.example.com"].model)"#,
        r#""gpu.example.com" in device.attributes && !("unknown.example.com" in device.attributes)"#,
        r#"device.attributes["gpu.example.com"].?serial.orValue("none") == "none""#,
        r#"device.attributes["gpu.example.com"].?model.orValue("none") == "A100""#,
        r#"device.attributes["gpu.example.com"].?model.hasValue()"#,
        r#"device.attributes["gpu.example.com"].modes.exists(mode, mode == "mig")"#,
        r#""vgpu" in device.attributes["gpu.example.com"].modes"#,
        r#"device.attributes["gpu.example.com"].modes.includes("mig")"#,
        r#"["A100", "H100"].exists(m, device.attributes["gpu.example.com"].model == m)"#,
        r#"device.attributes["gpu.example.com"].model.matches("^A[0-9]+$")"#,
        r#"device.attributes["gpu.example.com"].model.lowerAscii().contains("a1")"#,
        r#"["a", "b"].all(i, letter, i < 2 && letter != "c")"#,
        r"[1, 2, 3].filter(n, n > 1).map(n, n * 2) == [4, 6]",
        r#"device.attributes["gpu.example.com"].model != 5"#,
        r#"size(device.attributes["gpu.example.com"].model) == 4 && int("7") == 7"#,
        r#"sets.contains(["A100", "H100"], [device.attributes["gpu.example.com"].model])"#,
        r#"device.driver == "x" ? false : true"#,
        // If one operand decides the result, the other operand may fail.
        r#"device.attributes["gpu.example.com"].serial == "1" || device.driver == "gpu.example.com""#,
        r#"["1", "2"].exists(s, device.attributes["gpu.example.com"][s] == s || s == "2")"#,
    ] {
        assert_eq!(selects(expression), Ok(true), "{expression}");
    }
}

#[test]
fn what_is_false_or_has_no_value_does_not() {
    for expression in [
        r#"device.driver == "other""#,
        r#"device.attributes["gpu.example.com"].model == 5"#,
        r#"device.attributes["gpu.example.com"].healthy == "true""#,
        r#"device.attributes["gpu.example.com"].serial == "1" && device.driver == "other""#,
    ] {
        assert_eq!(selects(expression), Ok(false), "{expression}");
    }
    for (expression, expected) in [
        (r#"device.attributes["gpu.example.com"].serial == "1""#, "no such key: serial"),
        (r#"device.attributes["unknown.example.com"].model == "A100""#, "no such key: model"),
        (r#"device.attributes["gpu.example.com"].driverVersion == "1.0.0""#, "no such overload"),
        (r#"device.attributes["gpu.example.com"].model"#, "the value is of type string, not bool"),
        (r#"device.attributes["gpu.example.com"].model < 5"#, "no such overload"),
        (r#"device.name == "gpu-0""#, "no such key: name"),
        (r#"node.name == "a""#, "undeclared reference to 'node'"),
        (r"1 / 0 == 1", "division by zero"),
        (r#"quantity("many") == quantity("1")"#, "`many` is not a quantity"),
        ("device.driver ==", "syntax error"),
    ] {
        let fault = selects(expression).unwrap_err();
        assert!(matches!(fault, Fault::Error(_)), "{expression}: {fault:?}");
        assert!(fault.to_string().contains(expected), "{expression}: {fault}");
    }
}

#[test]
fn what_is_not_simulated_is_said() {
    for expression in [r#"ip("10.0.0.1").family() == 4"#, r#"url("https://a").getHost() == "a""#] {
        assert!(matches!(selects(expression), Err(Fault::Unsupported(_))), "{expression}");
    }
    // An unsupported function does not matter if the other operand decides the result.
    assert_eq!(selects(r#"isIP("a") || true"#), Ok(true));
}

#[test]
fn an_expression_takes_only_so_many_steps() {
    let ten = "[1,2,3,4,5,6,7,8,9,10]";
    let nested = |depth: usize| {
        let open = (0..depth).map(|at| format!("{ten}.all(v{at}, ")).collect::<Vec<_>>().concat();
        format!("{open}true{}", ")".repeat(depth))
    };
    assert_eq!(selects(&nested(3)), Ok(true));
    assert_eq!(selects(&nested(9)), Err(Fault::TooCostly));
    let deep = format!("{}true{}", "(".repeat(500), ")".repeat(500));
    assert!(selects(&deep).is_err());
    assert!(selects(&format!("\"{}\" == \"\"", "x".repeat(20_000))).is_err());
}

#[test]
fn many_operators_in_a_row_are_not_simulated() {
    let sum = |operators: usize| format!("0{} == {operators}", " + 1".repeat(operators));
    assert_eq!(selects(&sum(200)), Ok(true));
    assert!(matches!(selects(&sum(300)), Err(Fault::Unsupported(_))));
    let sides = vec!["device.driver == 'gpu.example.com'"; 200].join(" && ");
    assert_eq!(selects(&sides), Ok(true));
}

#[test]
fn comparing_takes_only_so_many_steps_whatever_lists_share() {
    let shared = |depth: usize| (0..depth).fold(Value::Int(1), |part, _| Value::list([part.clone(), part]));
    let left = Cell::new(100_000);
    assert_eq!(shared(5).equals(&shared(5), &left), Ok(true));
    assert!(left.get() < 100_000);
    assert_eq!(shared(60).equals(&shared(60), &left), Err(Fault::TooCostly));
}

#[test]
fn what_makes_long_texts_is_paid_before() {
    let long = "x".repeat(5000);
    let longer = format!("'{long}'.replace('x', '{}') == ''", &long[..4000]);
    assert_eq!(selects(&longer), Err(Fault::TooCostly));
    assert_eq!(selects("'axa'.replace('a', 'bc') == 'bcxbc' && ['a', 'b'].join('-') == 'a-b'"), Ok(true));
}

#[test]
fn versions_are_ordered_as_semver_says() {
    let all = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0",
        "1.0.1",
    ];
    for pair in all.windows(2) {
        let expression = format!("semver(\"{}\").isLessThan(semver(\"{}\"))", pair[0], pair[1]);
        assert_eq!(selects(&expression), Ok(true), "{expression}");
    }
    for wrong in ["1", "1.2", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.x", "v1.2.3", "1.2.3+"] {
        assert_eq!(selects(&format!("isSemver(\"{wrong}\")")), Ok(false), "{wrong}");
    }
    assert_eq!(selects("semver(\"1.2.3+a\") == semver(\"1.2.3+b\")"), Ok(true));
}
