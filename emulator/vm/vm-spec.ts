/** Account of a TPU that names none, as at Google. */
export const DEFAULT_ACCOUNT = '1-compute@developer.gserviceaccount.com';

/** Description of a VM: identity, place and metadata. */
export type VmSpec = {
  /** Unique for each VM; two VMs with one name have different ids. */
  id: string;
  name: string;
  zone: string;
  machine_type: string;
  /** Address of its network interface, on loopback. */
  address: string;
  /** Service account, by its e-mail address. */
  email: string;
  /** Metadata attributes; `startup-script` is the program that a boot runs. */
  attributes: Record<string, string>;
  /** Variables of its processes, on top of those of every VM. */
  env?: Record<string, string>;
};
