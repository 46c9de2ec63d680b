//! `[ops]`: data members of `struct sched_ext_ops`.
//!
//! Flags that the kernel lacks are left out, as user halves do: they take the values of `SCX_OPS_*` from the running
//! kernel's BTF, and 0 for what it does not know (`scx_utils::compat`). Not here: values (`value`).

use super::expression::Scope;
use super::value;
use schedlab_bpf::btf::{Btf, Kind};
use schedlab_bpf::image::ObjectImage;
use schedlab_bpf::object::knobs::nearest;
use schedlab_model::machine::KernelVersion;
use schedlab_sim::ext::kernel_btf;
use toml::Value;

/// Sets a data member of every `struct sched_ext_ops`; the names of flags that were left out.
pub(super) fn change(
    image: &mut ObjectImage,
    name: &str,
    value: &Value,
    scope: &Scope<'_>,
) -> Result<Vec<String>, String> {
    let types = scope.object;
    let ops_type = types.find_struct("sched_ext_ops").ok_or("the object has no struct sched_ext_ops")?;
    let member = types.member(ops_type, name).ok_or_else(|| {
        let known = types.members(ops_type).iter().map(|member| types.string(member.name_offset));
        let near = nearest(name, known);
        format!("struct sched_ext_ops has no member `{name}`{near}")
    })?;
    let mut bytes = vec![0; types.size_of(member.type_id).unwrap_or(0) as usize];
    let left_out = match name {
        "flags" => {
            let (flags, left_out) = flags(value, scope)?;
            let flags = Value::String(flags.to_string());
            value::encode(&flags, member.type_id, &mut bytes, scope)?;
            left_out
        }
        _ => value::encode(value, member.type_id, &mut bytes, scope).map(|()| Vec::new())?,
    };
    for ops in image.struct_ops.iter_mut().filter(|ops| ops.type_name == "sched_ext_ops") {
        ops.scalars.retain(|(known, _)| known != name);
        ops.scalars.push((name.to_owned(), bytes.clone()));
    }
    Ok(left_out)
}

/// The flags that are asked for and that the kernel has, and the names of those that it lacks.
fn flags(value: &Value, scope: &Scope<'_>) -> Result<(i128, Vec<String>), String> {
    let lacking = lacking(scope.kernel);
    let mut scope = scope.clone();
    scope.variables.extend(lacking.iter().cloned());
    let asked = value::plain(value, &scope)?;
    let left_out: Vec<_> = lacking.into_iter().filter(|(_, flag)| asked & flag != 0).collect();
    let kept = left_out.iter().fold(asked, |flags, (_, flag)| flags & !flag);
    Ok((kept, left_out.into_iter().map(|(name, _)| name).collect()))
}

/// Flags of other kernels. Their bits mean the same in all.
fn lacking(kernel: &Btf) -> Vec<(String, i128)> {
    let here = flags_of(kernel);
    let mut all = flags_of(&kernel_btf(KernelVersion::V7_2));
    all.extend(flags_of(&kernel_btf(KernelVersion::V6_12)));
    all.sort();
    all.dedup();
    all.retain(|(name, _)| here.iter().all(|(known, _)| known != name));
    all
}

fn flags_of(kernel: &Btf) -> Vec<(String, i128)> {
    let Some(id) = kernel.find_enum("scx_ops_flags") else { return Vec::new() };
    let Kind::Enum { values, .. } = kernel.resolved_kind(id) else { return Vec::new() };
    let flag = |value: &schedlab_bpf::btf::Enumerator| {
        (kernel.string(value.name_offset).to_owned(), i128::from(value.value as u64))
    };
    // Masks of several flags differ between kernels.
    values.iter().filter(|value| value.value.count_ones() == 1).map(flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_bpf::btf::BtfBuilder;
    use std::collections::BTreeMap;

    fn flags_on(kernel: KernelVersion, text: &str) -> Result<(i128, Vec<String>), String> {
        let mut builder = BtfBuilder::new();
        // What the object was compiled against does not matter.
        builder.declare("enum scx_ops_flags { SCX_OPS_ALWAYS_ENQ_IMMED = 128 };").expect("well formed");
        let (object, kernel) = (builder.finish(), kernel_btf(kernel));
        let variables = BTreeMap::from([("nr_nodes".to_owned(), 1)]);
        let value = Value::String(text.to_owned());
        flags(&value, &Scope { variables, object: &object, kernel: &kernel })
    }

    #[test]
    fn flags_that_the_kernel_lacks_are_left_out_and_told() {
        let asked = "SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_MIGRATION_DISABLED | SCX_OPS_ALWAYS_ENQ_IMMED | \
                     (nr_nodes > 1 ? SCX_OPS_BUILTIN_IDLE_PER_NODE : 0)";
        let (immed, migration) = ("SCX_OPS_ALWAYS_ENQ_IMMED", "SCX_OPS_ENQ_MIGRATION_DISABLED");
        for (kernel, kept, left_out) in [
            (KernelVersion::V6_12, 2, vec![immed, migration]),
            (KernelVersion::V6_18, 2 | 16, vec![immed]),
            (KernelVersion::V7_2, 2 | 16 | 128, Vec::new()),
        ] {
            let left_out = left_out.into_iter().map(str::to_owned).collect();
            assert_eq!(flags_on(kernel, asked), Ok((kept, left_out)), "{kernel}");
        }
        assert_eq!(
            flags_on(KernelVersion::V7_2, "SCX_OPS_HAS_CGROUP_WEIGHT"),
            Ok((0, vec!["SCX_OPS_HAS_CGROUP_WEIGHT".to_owned()]))
        );
    }

    #[test]
    fn a_flag_that_no_kernel_has_is_a_mistake() {
        let error = flags_on(KernelVersion::V6_12, "SCX_OPS_ALWAYS_ENQ_IMED").expect_err("no such flag");
        assert!(error.contains("did you mean SCX_OPS_ALWAYS_ENQ_IMMED"), "{error}");
    }
}
