//! The table of helpers and the C header say the same.

use super::*;
use crate::helpers::{HelperCost, Return};
use diskside_abi::HEADERS;
use std::collections::BTreeSet;

/// Function prototypes of the header for programs: comments and directives removed, one space
/// between words.
fn prototypes() -> BTreeSet<String> {
    let text = HEADERS[0].text;
    let start = text.find("#ifdef __bpf__\n/*\n * Each helper").expect("the helpers' part begins so");
    let end = text[start..].find("#else\n#include \"diskside_native.h\"").expect("and ends so");
    let mut code = String::new();
    let mut rest = &text[start + "#ifdef __bpf__".len()..start + end];
    while let Some(open) = rest.find("/*") {
        code.push_str(&rest[..open]);
        rest = &rest[open + rest[open..].find("*/").expect("comments end") + 2..];
    }
    code.push_str(rest);
    code.split(';').map(|p| p.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|p| !p.is_empty()).collect()
}

#[test]
fn prototypes_agree() {
    let table: BTreeSet<String> = standard().iter().map(|h| h.prototype.to_owned()).collect();
    let header = prototypes();
    let missing: Vec<_> = table.difference(&header).collect();
    assert!(missing.is_empty(), "not in diskside.h: {missing:#?}");
    let unknown: Vec<_> = header.difference(&table).collect();
    assert!(unknown.is_empty(), "in diskside.h, but no helper: {unknown:#?}");
}

#[test]
fn names_parameters_and_results_fit_the_prototypes() {
    for helper in standard().iter() {
        let (head, params) = helper.prototype.split_once('(').unwrap();
        assert!(head.ends_with(helper.name), "{}", helper.prototype);
        let params = params.strip_suffix(')').unwrap();
        let params: Vec<&str> = if params == "void" { Vec::new() } else { params.split(", ").collect() };
        assert_eq!(params.len(), helper.params.len(), "{}", helper.prototype);
        for (text, param) in params.iter().zip(helper.params) {
            let is_pointer = text.contains('*');
            let is_const = text.starts_with("const ");
            let fits = match param {
                Param::Scalar => !is_pointer,
                Param::Read { .. } | Param::ReadWithin { .. } | Param::Struct(_) => is_pointer && is_const,
                Param::Write { .. } | Param::WriteWithin { .. } | Param::Pointer => is_pointer && !is_const,
            };
            assert!(fits, "{}: {text} is {param:?}", helper.prototype);
            if let Param::Read { len, .. }
            | Param::Write { len, .. }
            | Param::ReadWithin { boundary: len }
            | Param::WriteWithin { boundary: len } = param
            {
                assert_eq!(helper.params[usize::from(*len)], Param::Scalar, "{}", helper.prototype);
            }
        }
        let fits = match helper.ret {
            Return::Void => head.starts_with("void ") && !head.contains('*'),
            Return::Scalar => !head.contains('*') && !head.starts_with("void "),
            Return::Heap | Return::Param(_) => head.starts_with("void *"),
        };
        assert!(fits, "{}: {:?}", helper.prototype, helper.ret);
        assert!(helper.doc.len() > 1 && !helper.doc.contains('\n'), "{}", helper.name);
    }
}

/// Intrinsics called as helpers give what the tiers compute inline.
#[test]
fn float_intrinsics_have_names_and_bodies() {
    let mut host = Host::new();
    let floats: Vec<_> = standard().iter().filter(|h| h.float.is_some()).copied().collect();
    assert_eq!(floats.len(), 42);
    for helper in floats {
        let (a, b) = (0x4008_0000_4049_0fdb, 0xbff0_0000_3f80_0000);
        let expected = crate::float::eval(helper.float.unwrap(), a, b);
        assert_eq!(host.call(helper.name, &[a, b]), Ok(expected), "{}", helper.name);
        let spelled = format!("{:?}", helper.float.unwrap()).to_lowercase();
        assert_eq!(helper.name.replace("ds_", "").replace('_', ""), spelled);
    }
}

#[test]
fn a_misspelt_name_finds_its_neighbours() {
    assert_eq!(standard().near("ds_fnd").first(), Some(&"ds_find"));
    assert_eq!(standard().near("ds_memcopy").first(), Some(&"ds_memcpy"));
    assert!(standard().near("completely_else").is_empty());
}

/// The cost that targets report for a helper is the cost that it charges.
#[test]
fn costs_are_those_that_are_charged() {
    const FEW: u64 = 64;
    // A line of log has no more.
    const MANY: u64 = 256;
    for helper in standard().iter().filter(|helper| helper.cost != HelperCost::Inline) {
        let charged = |count: u64| {
            let mut host = Host::with(1 << 20, Box::new(NoEnvironment));
            let (input, mut output) = (vec![0; 8 * MANY as usize], vec![0_u64; MANY as usize]);
            let args: Vec<u64> = helper
                .params
                .iter()
                .map(|param| match param {
                    Param::Scalar => count,
                    Param::Pointer => 0,
                    Param::Read { .. } | Param::ReadWithin { .. } | Param::Struct(_) => INPUT,
                    Param::Write { .. } | Param::WriteWithin { .. } => OUTPUT,
                })
                .collect();
            let mappings = Mappings::new()
                .read_only(RegionId::INPUT, &input)
                .writable(RegionId::OUTPUT, zerocopy::IntoBytes::as_mut_bytes(&mut output[..]));
            let before = host.machine.edges_left();
            host.mapped(mappings, |host| host.call(helper.name, &args)).unwrap();
            before - host.machine.edges_left()
        };
        match helper.cost {
            HelperCost::Linear => assert!(charged(MANY) >= charged(FEW) + (MANY - FEW) / 64, "{}", helper.name),
            HelperCost::Fixed => assert_eq!((charged(FEW), charged(MANY)), (1, 1), "{}", helper.name),
            HelperCost::Inline => {}
        }
    }
}
