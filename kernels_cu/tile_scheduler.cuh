// Which output tile comes when. Plain integer code, so that the tests compile it for the host.
//
// The [M, N] result is cut into clusters of kClusterM x kClusterN CTA tiles. Clusters are numbered
// so that `raster_rows` rows of clusters are walked, M fastest, before the next column begins: the
// CTAs that run at the same time then share few rows of X and few columns of the weights, and both
// stay in L2. Persistent clusters take numbers first, first + grid, first + 2 grid, ...
//
// The last clusters may be halves along M (numbers from `whole` on): where the last wave would fill
// less than half of the SMs, twice as many half tiles end sooner.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define CUSWIGLU_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define CUSWIGLU_HOST_DEVICE inline
#endif

namespace cuswiglu {

// A cluster's place, in clusters; `half`: 0 or 1 for the upper or lower half, -1 for all of it.
struct ClusterCoord {
  int m;
  int n;
  int half;
};

struct TileScheduler {
  int clusters_m;
  int clusters_n;
  int raster_rows;
  int whole;

  // cluster_rows x cluster_columns: the elements of the result that one cluster computes.
  // whole_clusters: how many are computed whole; the rest as two halves each.
  CUSWIGLU_HOST_DEVICE TileScheduler(int m, int n, int cluster_rows, int cluster_columns,
                                     int raster_rows_, int whole_clusters)
      : clusters_m((m + cluster_rows - 1) / cluster_rows),
        clusters_n((n + cluster_columns - 1) / cluster_columns),
        raster_rows(raster_rows_ < clusters_m ? raster_rows_ : clusters_m),
        whole(whole_clusters < clusters_m * clusters_n ? whole_clusters : clusters_m * clusters_n) {
  }

  // How many numbers there are.
  CUSWIGLU_HOST_DEVICE int count() const { return whole + 2 * (clusters_m * clusters_n - whole); }

  CUSWIGLU_HOST_DEVICE ClusterCoord coord(int number) const {
    int half = -1;
    if (number >= whole) {
      half = (number - whole) % 2;
      number = whole + (number - whole) / 2;
    }
    int const per_band = raster_rows * clusters_n;
    int const band = number / per_band;
    int const first_row = band * raster_rows;
    int const rows_left = clusters_m - first_row;
    int const rows = rows_left < raster_rows ? rows_left : raster_rows;
    int const within = number - band * per_band;
    int const column = within / rows;
    return {first_row + within - column * rows, column, half};
  }
};

}  // namespace cuswiglu
