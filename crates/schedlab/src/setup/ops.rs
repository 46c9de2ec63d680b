//! `[ops]`: data members of `struct sched_ext_ops`.
//!
//! Flags that the kernel lacks are left out, as user halves do: they take the values of `SCX_OPS_*` from the running
//! kernel's BTF, and 0 for what it does not know (`scx_utils::compat`). Not here: values (`value`).

use super::expression::Scope;
use super::value;
use schedlab_bpf::btf::{Btf, Kind};
use schedlab_bpf::image::ObjectImage;
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
    let member = value::member_of(types, ops_type, name)?;
    let mut bytes = vec![0; types.size_of(member.type_id).unwrap_or(0) as usize];
    let left_out = match name {
        "flags" => flags(value, member.type_id, &mut bytes, scope)?,
        _ => value::encode(value, member.type_id, &mut bytes, scope).map(|()| Vec::new())?,
    };
    for ops in image.struct_ops.iter_mut().filter(|ops| ops.type_name == "sched_ext_ops") {
        ops.scalars.retain(|(known, _)| known != name);
        ops.scalars.push((name.to_owned(), bytes.clone()));
    }
    Ok(left_out)
}

/// Writes the flags that are asked for and that the kernel has; the names of those that it lacks.
fn flags(value: &Value, type_id: u32, bytes: &mut [u8], scope: &Scope<'_>) -> Result<Vec<String>, String> {
    let lacking = lacking(scope.kernel);
    let mut scope = scope.clone();
    scope.variables.extend(lacking.iter().map(|(name, flag)| (name.clone(), i128::from(*flag))));
    // What was asked for is encoded whole: a number out of bounds is told as it was written.
    value::encode(value, type_id, bytes, &scope)?;
    let cut = |(name, flag): (String, u64)| take_out(bytes, flag).then_some(name);
    Ok(lacking.into_iter().filter_map(cut).collect())
}

/// Takes flags out of a number in little-endian order, if any of them is in.
fn take_out(bytes: &mut [u8], flags: u64) -> bool {
    let mut found = false;
    for (byte, flags) in bytes.iter_mut().zip(flags.to_le_bytes()) {
        found |= *byte & flags != 0;
        *byte &= !flags;
    }
    found
}

/// Flags of other kernels. Their bits mean the same in all.
fn lacking(kernel: &Btf) -> Vec<(String, u64)> {
    let here = flags_of(kernel);
    let mut all = flags_of(&kernel_btf(KernelVersion::V7_2));
    all.extend(flags_of(&kernel_btf(KernelVersion::V6_12)));
    all.sort();
    all.dedup();
    all.retain(|(name, _)| here.iter().all(|(known, _)| known != name));
    all
}

fn flags_of(kernel: &Btf) -> Vec<(String, u64)> {
    let Some(id) = kernel.find_enum("scx_ops_flags") else { return Vec::new() };
    let Kind::Enum { values, .. } = kernel.resolved_kind(id) else { return Vec::new() };
    let flag = |value: &schedlab_bpf::btf::Enumerator| {
        (kernel.string(value.name_offset).to_owned(), value.value as u64)
    };
    // Masks of several flags differ between kernels.
    values.iter().filter(|value| value.value.count_ones() == 1).map(flag).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedlab_bpf::btf::BtfBuilder;
    use std::collections::BTreeMap;

    fn flags_on(kernel: KernelVersion, text: &str) -> Result<(u64, Vec<String>), String> {
        let mut builder = BtfBuilder::new();
        // What the object was compiled against does not matter.
        builder.declare("enum scx_ops_flags { SCX_OPS_ALWAYS_ENQ_IMMED = 128 };").expect("well formed");
        let flags_type = builder.type_id("u64").expect("known");
        let (object, kernel) = (builder.finish(), kernel_btf(kernel));
        let variables = BTreeMap::from([("nr_nodes".to_owned(), 1)]);
        let (value, mut bytes) = (Value::String(text.to_owned()), [0; 8]);
        let scope = Scope { variables, object: &object, kernel: &kernel };
        let left_out = flags(&value, flags_type, &mut bytes, &scope)?;
        Ok((u64::from_le_bytes(bytes), left_out))
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

    #[test]
    fn flags_out_of_bounds_are_told_as_they_were_written() {
        let error = flags_on(KernelVersion::V6_18, "-1").expect_err("no flags");
        assert!(error.contains("-1 is out of bounds: 0 to 18446744073709551615"), "{error}");
    }
}
