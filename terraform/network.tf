locals {
  makes_network = var.network.name == null
  regions       = distinct([for zone in local.allowed_zones : join("-", slice(split("-", zone), 0, 2))])
  # Each region keeps its range while zones are appended.
  ranges     = { for index, region in local.regions : region => cidrsubnet("10.64.0.0/10", 10, index) if local.makes_network }
  network    = local.makes_network ? google_compute_network.network[0].name : var.network.name
  subnetwork = local.makes_network ? "${var.name}-workers" : var.network.subnetwork
  # The provider checks each element of a set before it knows an account.
  slice_accounts = var.max_hosts > 1 ? ["${var.name}-worker@${var.project}.iam.gserviceaccount.com"] : []
}

# A network without a rule for ingress admits no connection from outside. See the rule for slices of several hosts below.
resource "google_compute_network" "network" {
  count                   = local.makes_network ? 1 : 0
  name                    = var.name
  auto_create_subnetworks = false
  depends_on              = [google_project_service.service]
}

# A node request names one subnet, so the subnets of all regions share the name.
resource "google_compute_subnetwork" "workers" {
  for_each                 = local.ranges
  name                     = "${var.name}-workers"
  network                  = google_compute_network.network[0].id
  region                   = each.key
  ip_cidr_range            = each.value
  private_ip_google_access = true
}

# The hosts of a slice, and slices that run one job, form a cluster of JAX. A network of the project needs such a rule of its own.
resource "google_compute_firewall" "slices" {
  count                   = local.makes_network && var.max_hosts > 1 ? 1 : 0
  name                    = "${var.name}-slices"
  network                 = google_compute_network.network[0].id
  direction               = "INGRESS"
  source_service_accounts = local.slice_accounts
  target_service_accounts = local.slice_accounts
  depends_on              = [google_service_account.account]

  allow {
    protocol = "tcp"
  }
}

resource "google_compute_router" "nat" {
  for_each = var.network.nat ? local.ranges : {}
  name     = "${var.name}-nat"
  network  = google_compute_network.network[0].id
  region   = each.key
}

# Nodes have no external address. Models of the hub, and packages of jobs, arrive through Cloud NAT. A boot needs neither.
resource "google_compute_router_nat" "nat" {
  for_each                           = google_compute_router.nat
  name                               = "${var.name}-nat"
  router                             = each.value.name
  region                             = each.key
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"
  # The 64 ports of a VM do not suffice for the parallel downloads of a package index and of the hub.
  enable_dynamic_port_allocation      = true
  enable_endpoint_independent_mapping = false
  min_ports_per_vm                    = 64
  max_ports_per_vm                    = 4096
}
