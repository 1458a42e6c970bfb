// Rasters by bands. Plain integer code: compiles for the host too.
#pragma once

#include "common/host_device.cuh"

namespace cuswiglu {

struct Place {
  int row;
  int column;
};

// The place of a number among rows x columns, of which bands of `raster_rows` rows come one after
// another; in a band column by column, rows fastest.
CUSWIGLU_HOST_DEVICE Place place_in_bands(int number, int rows, int columns, int raster_rows) {
  int const per_band = raster_rows * columns;
  int const band = number / per_band;
  int const first_row = band * raster_rows;
  int const rows_left = rows - first_row;
  int const band_rows = rows_left < raster_rows ? rows_left : raster_rows;
  int const within = number - band * per_band;
  int const column = within / band_rows;
  return {first_row + within - column * band_rows, column};
}

}  // namespace cuswiglu
