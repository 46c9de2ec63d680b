/*
 * libbpf's header of this name for the machine's own code: types and enumerators are those of the headers.
 */
#ifndef NATIVE_BPF_CORE_READ_H
#define NATIVE_BPF_CORE_READ_H

#define bpf_core_type_exists(type) 1
#define bpf_core_field_exists(field...) 1
#define bpf_core_enum_value_exists(type, name) 1
#define bpf_core_enum_value(type, name) (name)

#endif
